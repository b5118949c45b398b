"""Remove characters without a visible form, for the snippet of a message and the check of file names."""

import re

# Default_Ignorable_Code_Point of Unicode 16 (DerivedCoreProperties.txt), line separators, and the blank of Braille.
without_invisible = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
).sub
