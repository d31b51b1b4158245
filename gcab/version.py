"""The version of the program, written into every run and model folder."""

VERSION = "0.1.0"
