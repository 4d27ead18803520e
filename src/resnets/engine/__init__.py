"""How it runs fast. The networks in `nn` do not know that this room exists."""
