"""alluvia.operations.retention"""
