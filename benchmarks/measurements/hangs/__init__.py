"""Whether programs that hang, compile slowly or wait get the right verdict."""
