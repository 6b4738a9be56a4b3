"""How many calls a second the governor lets through, alone and beside others that share its rate."""
