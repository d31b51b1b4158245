"""Image sizes: one number where images are square, else height and width."""

Size = int | tuple[int, int]


def sides(size: Size) -> tuple[int, int]:
    """Height and width."""
    return (size, size) if isinstance(size, int) else size


def simplest(height: int, width: int) -> Size:
    """A size in canonical form: one number for a square."""
    return height if height == width else (height, width)


def parse_size(text: str) -> Size:
    """Read `64` or `48x96`; anything else is a ValueError."""
    height, both, width = text.lower().partition("x")
    return simplest(int(height), int(width if both else height))


def size_name(size: Size) -> str:
    """A size as it is given on a command line, and part of file names."""
    return "x".join(map(str, sides(size))) if isinstance(size, tuple) else str(size)


def pixels(size: Size) -> str:
    """A size in words: 48 x 96 pixels."""
    height, width = sides(size)
    return f"{height} x {width} pixels"


def covered(height: float, width: float, size: Size) -> tuple[float, float]:
    """Height and width of the largest part of an image that has the shape of this size."""
    rows, columns = sides(size)
    return min(height, width * rows / columns), min(width, height * columns / rows)
