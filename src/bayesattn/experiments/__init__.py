"""What is built with the library: tasks, methods, runs, tables, reports and the command line; needs the `experiments` extra."""
