"""What a request asks for: which endpoint, which model, how large, how urgent. Reads; decides nothing about admission."""
