// What kind of thing a word names, for words that a closed vocabulary lacks: whoever asks for a
// kangaroo is better served by `animal` than by a word that is spelled like it. Lists of common
// English names, by no means whole; a word may stand in several, the nearest kind first.

const NAMES: Readonly<Record<string, string>> = {
  bird:
    "albatross,budgie,buzzard,canary,cockatoo,condor,cormorant,crane,crow,cuckoo,dove,eagle,egret," +
    "emu,falcon,finch,flamingo,grouse,hawk,hen,heron,hummingbird,ibis,jay,kestrel,kingfisher,kite," +
    "kiwi,lark,loon,macaw,magpie,nightingale,ostrich,owl,parakeet,parrot,partridge,peacock,pelican," +
    "penguin,pheasant,puffin,quail,raven,robin,rook,rooster,sandpiper,sparrow,starling,stork," +
    "swallow,swan,swift,toucan,turkey,vulture,warbler,woodpecker,wren",
  animal:
    "alligator,alpaca,amphibian,ant,anteater,antelope,ape,armadillo,baboon,badger,bat,beaver,bee," +
    "beetle,bison,boar,bobcat,buffalo,bug,butterfly,camel,caribou,caterpillar,centipede,chameleon," +
    "cheetah,chimpanzee,chinchilla,chipmunk,clam,cobra,cockroach,cod,cougar,coyote,crab,crayfish," +
    "creature,cricket,crocodile,deer,dingo,dolphin,donkey,dragonfly,eel,elk,ermine,ferret,fish,flea," +
    "fly,fox,frog,gazelle,gecko,gerbil,gibbon,gnu,goat,goldfish,gorilla,grasshopper,groundhog," +
    "guinea pig,hamster,hare,hedgehog,hippo,hippopotamus,hog,hyena,iguana,insect,jackal,jaguar," +
    "jellyfish,kangaroo,koala,ladybug,lemming,lemur,leopard,lion,lioness,lizard,llama,lobster,lynx," +
    "mackerel,mammal,manatee,marmot,mite,mole,mongoose,monkey,moose,mosquito,moth,mouse,mule,newt," +
    "ocelot,octopus,okapi,opossum,orangutan,orca,otter,oyster,panda,panther,pig,piglet,platypus," +
    "polecat,porcupine,porpoise,possum,prairie dog,prawn,primate,puma,python,rabbit,raccoon,ram,rat," +
    "ray,reindeer,reptile,rhino,rhinoceros,rodent,salamander,salmon,scorpion,sea lion,seahorse,seal," +
    "shark,shrew,shrimp,skunk,sloth,slug,snail,snake,spider,squid,squirrel,stag,starfish,stoat,swine," +
    "tadpole,tapir,termite,tick,tiger,toad,tortoise,trout,tuna,turtle,viper,vole,walrus,warthog,wasp," +
    "weasel,whale,wildebeest,wolf,wolverine,wombat,worm,yak",
  vehicle:
    "ambulance,bulldozer,caravan,cart,combine harvester,digger,drone,excavator,fire engine,forklift," +
    "go kart,golf cart,harvester,helicopter,hovercraft,lawnmower,limousine,loader,quad bike,rickshaw," +
    "road roller,snowmobile,street sweeper,tank,tractor,trailer,tricycle,trolley,wagon,wheelchair",
  fruit:
    "apricot,berry,blackberry,blueberry,cherry,coconut,fig,grape,grapefruit,kiwi,lemon,lime,mango," +
    "melon,nectarine,papaya,peach,pear,pineapple,plum,pomegranate,raspberry,strawberry,watermelon",
  vegetable:
    "asparagus,aubergine,bean,beet,cabbage,cauliflower,celery,corn,courgette,cucumber,eggplant," +
    "garlic,leek,lettuce,mushroom,onion,pea,pepper,potato,pumpkin,radish,spinach,tomato,turnip," +
    "zucchini",
};

/** Names of each kind, most of them one word. */
export const KINDS: ReadonlyMap<string, ReadonlySet<string>> = new Map(
  Object.entries(NAMES).map(([kind, names]) => [kind, new Set(names.split(","))]),
);
