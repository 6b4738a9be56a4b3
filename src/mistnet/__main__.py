"""Makes `python -m mistnet` the same as `mistnet`."""

from mistnet.cli.main import main

main()
