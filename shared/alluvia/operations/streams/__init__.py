"""alluvia.operations.streams"""
