// The whole library. In reading order: types, register_tile, shared_tile, concepts, maps, reductions,
// conversions, masks, ptx, memory_shared, memory_global, mma, group.
#pragma once

#include "conversions.h"
#include "group.h"
#include "maps.h"
#include "masks.h"
#include "memory_global.h"
#include "memory_shared.h"
#include "mma.h"
#include "reductions.h"
#include "register_tile.h"
#include "shared_tile.h"
