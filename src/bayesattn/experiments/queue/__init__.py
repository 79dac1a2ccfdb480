"""One queue of runs for all tables: by priority, stopped and continued at any time, results kept as they come."""
