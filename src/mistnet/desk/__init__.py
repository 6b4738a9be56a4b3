"""What an operator sees and does, be it by command, by API or on a page."""
