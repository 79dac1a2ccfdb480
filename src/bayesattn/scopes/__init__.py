"""The blocks that a forward pass runs in, each per thread and per asyncio task: `record()`, `sampling()`, `one_draw()`, `watch()`."""
