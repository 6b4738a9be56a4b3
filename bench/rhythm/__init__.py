"""How soon new posts are found for the same credits: fixed polling beside mistnet's rhythm."""
