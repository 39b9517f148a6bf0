// The page of one run with its data inside.
export {};
