"""The experiments of Hoory et al. 2021 (a DP pre-trained language model): table 2, figures 1 and 2, and what each trick gives."""
