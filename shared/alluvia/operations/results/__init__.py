"""alluvia.operations.results"""
