"""The command line, built with click. See `dropmargin.cli.main` for the entry point, and a module per command."""
