"""Where elements lie: addresses, masks and vectors, of arrays and of tiles in shared memory."""
