"""The only place that prints, exits or talks to people. One file a command."""
