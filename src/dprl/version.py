"""The version, as the project file has it. A leaf."""

VERSION = "0.2.0"
