"""Make the data of the program."""

open("table.csv", "w").write("1,2\n3,9\n")
