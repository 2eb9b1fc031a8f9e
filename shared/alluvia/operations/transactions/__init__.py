"""alluvia.operations.transactions"""
