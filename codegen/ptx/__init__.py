"""PTX: instruction rows, matrix instructions, and the back end that prints them."""
