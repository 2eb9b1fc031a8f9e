"""alluvia.operations.catalog"""
