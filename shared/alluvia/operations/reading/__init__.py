"""alluvia.operations.reading"""
