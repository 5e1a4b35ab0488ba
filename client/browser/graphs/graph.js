export const FLOAT = 1, INT32 = 6, INT64 = 7, BOOL = 9, DOUBLE = 11;
