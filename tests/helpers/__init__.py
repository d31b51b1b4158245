"""What several tests need: the tiny configuration, photos, models and runs made of it, and ways to start gcab."""
