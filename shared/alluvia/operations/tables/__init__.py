"""alluvia.operations.tables"""
