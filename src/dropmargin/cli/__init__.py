"""The command line. A command is a module of its own, imported when it is asked for; see `dropmargin.cli.main`."""
