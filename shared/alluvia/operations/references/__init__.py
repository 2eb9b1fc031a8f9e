"""alluvia.operations.references"""
