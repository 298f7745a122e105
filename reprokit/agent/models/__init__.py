"""The networks of the zoo, one file each; a file is also the text of a repro.

They import only torch.
"""
