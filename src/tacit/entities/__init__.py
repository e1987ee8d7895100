"""Entity extraction on a released model: one fine-tuned model with its certificate, or many compared.

start.py        the model folder that fine-tuning begins with, and what its certificate says
plan.py         what `tacit plan` says of a fine-tuning or a comparison
finetune.py     `tacit finetune`: a folder with ledger, certificate and model
cells.py        one model on one fold of one task
compare.py      `tacit compare`: all cells, resumable
tables.py       their tables
figure.py       their plot
"""
