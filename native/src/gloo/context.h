#pragma once
#include "gloo.h"
