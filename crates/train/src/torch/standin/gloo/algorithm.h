// See context.h beside it.
#pragma once
#include <gloo/context.h>
