"""The command line, called in this process: as the library's own tests call it."""

from tests.cli.conftest import dprl as dprl
