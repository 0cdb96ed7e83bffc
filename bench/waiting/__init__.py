"""Behind a queue: what Tenure's decisions cost while ever more runs wait, and what a waiting run weighs."""
