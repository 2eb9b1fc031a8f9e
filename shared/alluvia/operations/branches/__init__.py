"""alluvia.operations.branches"""
