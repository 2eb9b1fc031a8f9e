"""alluvia.operations.rows"""
