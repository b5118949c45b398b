"""The command lines of the tools: one module a command, named after it."""
