"""Everything that can go wrong around mistnet, played against real processes and compared with the truth."""
