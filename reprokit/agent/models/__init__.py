"""The zoo's networks, one flat file each: a file here is also the text of a repro, so it imports torch alone."""
