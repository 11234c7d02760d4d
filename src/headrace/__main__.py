"""`python -m headrace`: the command, where no script is on the path."""

from headrace.cli import main

if __name__ == "__main__":
    main()
