"""alluvia.operations.erasure"""
