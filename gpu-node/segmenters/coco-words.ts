// COCO's 80 classes in the detector's order, what else people call them, and groups of them.

import { wordsOf } from "../../shared/detector/vocabulary.ts";

export const COCO_NAMES: readonly string[] = [
  ..."person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light".split(","),
  ..."fire hydrant,stop sign,parking meter,bench,bird,cat,dog,horse,sheep,cow".split(","),
  ..."elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee".split(","),
  ..."skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard".split(","),
  ..."surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,banana".split(","),
  ..."apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch".split(","),
  ..."potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard".split(","),
  ..."cell phone,microwave,oven,toaster,sink,refrigerator,book,clock,vase".split(","),
  ..."scissors,teddy bear,hair drier,toothbrush".split(","),
];

/** Other words for the whole of a class, or for more than it. */
const SYNONYMS: Readonly<Record<string, string>> = {
  person: "people,human,human being",
  bicycle: "bike,cycle,pushbike",
  car: "automobile,passenger car",
  motorcycle: "motorbike",
  airplane: "aeroplane,plane,aircraft",
  truck: "lorry",
  boat: "ship,vessel",
  "traffic light": "traffic signal,stoplight",
  "fire hydrant": "hydrant",
  cat: "kitty",
  cow: "cattle",
  backpack: "rucksack,knapsack",
  umbrella: "parasol",
  handbag: "purse",
  tie: "necktie",
  suitcase: "luggage",
  frisbee: "flying disc",
  skis: "ski",
  "sports ball": "ball",
  "baseball bat": "bat",
  "baseball glove": "baseball mitt",
  "tennis racket": "racket,racquet",
  "wine glass": "wineglass,goblet",
  "hot dog": "hotdog",
  donut: "doughnut",
  chair: "seat",
  couch: "sofa,settee",
  "potted plant": "plant,houseplant",
  "dining table": "table",
  tv: "television,screen,display",
  laptop: "notebook computer",
  mouse: "computer mouse",
  remote: "remote control",
  "cell phone": "phone,telephone,smartphone,cellphone,mobile phone",
  oven: "stove",
  sink: "basin,washbasin",
  refrigerator: "fridge",
  "teddy bear": "teddy,stuffed toy,plush toy",
  "hair drier": "hair dryer,hairdryer",
};

/** Words for some of a class: the segmenter finds the others too. */
const NARROWER: Readonly<Record<string, string>> = {
  person:
    "man,woman,boy,girl,child,children,kid,baby,adult,pedestrian,passerby,worker,player,rider," +
    "driver,customer,shopper,cyclist,athlete,guy,lady,skier,surfer,motorcyclist,biker",
  car: "sedan,taxi,cab,suv,hatchback,police car,convertible",
  motorcycle: "scooter,moped",
  airplane: "jet,airliner",
  bus: "coach,minibus,school bus",
  train: "tram,locomotive,railcar",
  truck: "pickup,pickup truck,van,semi trailer,fire truck",
  boat: "sailboat,canoe,kayak,ferry,yacht",
  bird: "pigeon,seagull,gull,duck,goose,geese,chicken",
  cat: "kitten",
  dog: "puppy,hound",
  horse: "pony,foal",
  sheep: "lamb,ewe",
  cow: "bull,ox,oxen,calf",
  bear: "brown bear,polar bear,grizzly",
  handbag: "tote bag",
  "sports ball": "football,soccer ball,basketball,tennis ball,volleyball",
  bottle: "flask",
  cup: "mug,teacup,drinking glass",
  sandwich: "burger,hamburger",
  chair: "armchair,stool",
  "dining table": "desk",
  tv: "monitor",
  refrigerator: "freezer",
  clock: "watch",
};

const GROUPS: Readonly<Record<string, string>> = {
  vehicle: "car,bus,truck,motorcycle,bicycle,train,boat,airplane",
  "motor vehicle": "car,bus,truck,motorcycle",
  animal: "bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe",
  livestock: "horse,sheep,cow",
  pet: "cat,dog",
  fruit: "banana,apple,orange",
  vegetable: "broccoli,carrot",
  food: "sandwich,pizza,donut,cake,hot dog,banana,apple,orange,broccoli,carrot",
  bag: "backpack,handbag,suitcase",
  furniture: "chair,couch,bed,dining table,bench",
  cutlery: "fork,knife,spoon",
  tableware: "bottle,wine glass,cup,fork,knife,spoon,bowl",
  electronics: "tv,laptop,cell phone,keyboard,mouse,remote",
};

const lists = (texts: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, text.split(",")]));

/** Every word that answers to classes of COCO. */
export const COCO_WORDS = wordsOf({
  names: COCO_NAMES,
  synonyms: lists(SYNONYMS),
  narrower: lists(NARROWER),
  groups: lists(GROUPS),
});

/** The meaning of the words that are no class's own name. */
export const COCO_MEANINGS = Object.fromEntries(
  [...COCO_WORDS].filter(([word]) => !COCO_NAMES.includes(word)),
);
