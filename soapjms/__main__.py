"""`python -m soapjms` is the command `soapjms`."""

from soapjms.cli import main

if __name__ == "__main__":
    main()
