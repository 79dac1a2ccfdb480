"""The blocks that a forward pass runs in, one state for each thread: `record()`, `sampling()`, `one_draw()`, `watch()`."""
