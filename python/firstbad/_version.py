"""The version of the package: that of the headers it was written against."""
__version__ = "0.1.0"
