#pragma once
#include "text/tokenizer.h"
