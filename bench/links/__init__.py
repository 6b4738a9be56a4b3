"""How fast links are named and found, beside the libraries the rules stand on."""
