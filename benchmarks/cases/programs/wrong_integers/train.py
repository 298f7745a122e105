import csv

import torch


def read(path):
    with open(path) as file:
        return [[float(cell) for cell in row] for row in csv.reader(file)]


def to_bins(table, scale):
    table = table / scale
    return torch.nan_to_num(table, posinf=torch.iinfo(torch.int64).max).long()


table = torch.tensor(read("table.csv"))
to_bins = torch.compile(to_bins)
for scale in (1.0, 0.0):
    print(to_bins(table, torch.tensor(scale)).sum())
