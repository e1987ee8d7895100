"""`python -m tacit` is `tacit`; for several processes: `torchrun --nproc-per-node 2 -m tacit run CONFIG`."""

from tacit.cli.main import main

if __name__ == "__main__":
    main()
